"""The settings class of each verb and of each of lmtool's own options, for the tests that walk them all."""

from __future__ import annotations

from lmtool.commands import settings_of, verbs
from lmtool.config.options import GROUP_MODULES, kinds, settings_class
from lmtool.config.training import TrainingConfig

VERB_SETTINGS: dict[str, type] = {verb: settings_of(verb) for verb in verbs()}
# By group ("" for the verbs) and name of the verb or option.
SETTINGS: dict[str, dict[str, type]] = {
    "": VERB_SETTINGS,
    **{group: {kind: settings_class(group, kind) for kind in kinds(group)} for group in GROUP_MODULES},
    "training": {"standard": TrainingConfig},
}
