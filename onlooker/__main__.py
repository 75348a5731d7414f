"""``python -m onlooker``."""

from onlooker.cli import main

main()
