"""Rewards learnt while observations arrive: the Observer, and the page that shows its estimate."""
