"""Rows as they come: the Observer, and the page that shows a reward while it is being learnt."""
