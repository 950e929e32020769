"""Who may do what over HTTP: tokens, the login of the page, and the checks of hosts, origins and limits."""
