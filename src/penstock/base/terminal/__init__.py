"""Terminal output of long work: live views and progress bars, or plain lines where there is no terminal."""
