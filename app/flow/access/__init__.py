"""Who may do what: keys are made, shown, taken back, and jobs are hidden from those whom they do not concern."""
