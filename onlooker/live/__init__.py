"""The page that shows a reward being learnt, and the report that is kept of one."""
