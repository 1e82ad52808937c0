"""Settings that several verbs share (verbs.py), base classes of the groups of options (groups.py), and the search for
options (options.py). Values are only in conf/*.yaml; types and ranges are here, beside each option and in each verb.
"""
