"""Pages for people, results that are kept, progress, and the check of everything that was made."""
