"""Sockets that one process alone listens on: where they are, who answers, and who starts whoever should answer."""
