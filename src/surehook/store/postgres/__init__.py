"""PostgreSQL: SQL files, one per component, and beside each the few lines that call them."""
