"""From results to what a paper shows: tables, figures and numbers."""
