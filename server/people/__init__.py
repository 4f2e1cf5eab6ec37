"""People: workspaces, their members, what these may have, and who did what."""
