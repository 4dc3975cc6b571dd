"""One process put together: which database, which components, until when."""
