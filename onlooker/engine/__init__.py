"""Chains over a stream: the loop, what it counts, its diagnostics and its checkpoints."""
