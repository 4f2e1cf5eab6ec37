"""Other formats, read and written from their published layouts, without their code."""
