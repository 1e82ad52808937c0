"""The earlier place of TreeWords, which options of users import from here."""

from lmtool.trees.tree import TreeWords as TreeWords
