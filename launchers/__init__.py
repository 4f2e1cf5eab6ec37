"""Programs that run inside an allocation."""
