"""The live page: what it watches, what it shows, and how it is served."""
