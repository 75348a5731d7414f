"""When did the reward jump? A statistic, what to expect, and a watch that compares the two."""
