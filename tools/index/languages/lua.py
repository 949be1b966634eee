"""Lua."""

import tree_sitter_lua

from tools.index.languages.language import COMMENTS, Language, words

LANGUAGE = Language(
    name="lua",
    grammar=tree_sitter_lua.language,
    definitions="""
        (function_declaration name: (identifier) @name) @function
        (function_declaration
            name: (dot_index_expression table: (_) @container field: (identifier) @name)) @function
        (function_declaration
            name: (method_index_expression table: (_) @container method: (identifier) @name)) @method
        (assignment_statement (variable_list name: (dot_index_expression table: (_) @container
            field: (identifier) @name)) (expression_list value: (function_definition))) @function
        (variable_declaration (assignment_statement (variable_list name: (identifier) @name)
            (expression_list value: (function_definition)))) @function
        (field name: (identifier) @name value: (function_definition)) @function
    """,
    blanks=COMMENTS + " (string_content) @blank",
    keywords=words(
        "and break do else elseif end false for function goto if in local nil not or repeat return then true "
        "until while"
    ),
)
