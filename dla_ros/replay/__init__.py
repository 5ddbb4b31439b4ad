"""Replay: recorded images through a model, the same every time, and what has changed since."""
