"""Alembic migrations, shipped with the package and run by `hpcplat db migrate`."""
