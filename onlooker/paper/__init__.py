"""One file per example of the paper: what ``onlooker reproduce NAME`` runs."""
