"""The Aim UI: a process that is not trusted, behind the service's login."""
