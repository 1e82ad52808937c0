"""From words or arguments to a request, and its run: what the command line and the functions of Python share."""
