"""How far a roll is: replaced nodes by domain, what waits for what, and when it will end."""
