"""Shell 1: a real cluster. The only asyncio and the only HTTP."""
