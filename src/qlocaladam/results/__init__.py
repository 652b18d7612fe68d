"""Tables, figures and numbers, made of runs and analyses."""
