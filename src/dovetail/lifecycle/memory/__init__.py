"""What the engine remembers about ended commands and moved pods; bounded, and forgotten after some time."""
