"""Ruby."""

import tree_sitter_ruby

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="ruby",
    grammar=tree_sitter_ruby.language,
    definitions="""
        (module name: [(constant) @name (scope_resolution name: (constant) @name)]) @module
        (class name: [(constant) @name (scope_resolution name: (constant) @name)]) @class
        (singleton_class value: (_) @name) @scope
        (method name: (_) @name) @function
        (singleton_method name: (_) @name) @method
        (alias name: (_) @name) @method
        (assignment left: (constant) @name) @constant
        (call method: (identifier) @_call arguments: (argument_list (simple_symbol) @name) @field
            (#any-of? @_call "attr_reader" "attr_writer" "attr_accessor"))
    """,
    blanks="(comment) @blank (string_content) @blank (heredoc_content) @blank",
    keywords=words(
        "BEGIN END alias and begin break case class def defined do else elsif end ensure false for if in "
        "module "
        "next nil not or redo rescue retry return self super then true undef unless until when while yield"
    ),
    methods_in=frozenset({"class", "module", "scope"}),
    separator="::",
)
