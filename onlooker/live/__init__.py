"""Rewards learnt while observations arrive: the Observer, and the page that shows its estimate."""

from onlooker.live.observer import Observer

__all__ = ["Observer"]
