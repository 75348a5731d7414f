"""What was seen: observations, streams of them, their quality, and the logs they are kept in."""
