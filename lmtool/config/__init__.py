"""Settings of the verbs (verbs.py, model_verbs.py), base classes of the groups of options (groups.py), and the search
for options (options.py). Values are only in conf/*.yaml; types and ranges are here and beside each option.
"""
