"""Programs for data at rest: they write what hpcplat.datasets reads."""
