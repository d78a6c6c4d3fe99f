"""The API server: how to reach it, what it holds, lists and watches, the Lease."""
