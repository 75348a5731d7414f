"""The examples of the paper, one file each, which ``onlooker reproduce NAME`` runs."""
