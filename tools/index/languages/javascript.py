"""JavaScript, and what TypeScript shares with it."""

import tree_sitter_javascript

from tools.index.languages.language import Language, words

SHARED = """
    (function_declaration name: (identifier) @name) @function
    (generator_function_declaration name: (identifier) @name) @function
    (method_definition name: (_) @name) @method
    (lexical_declaration (variable_declarator name: (identifier) @name
        value: [(arrow_function) (function_expression) (generator_function)])) @function
    (variable_declaration (variable_declarator name: (identifier) @name
        value: [(arrow_function) (function_expression) (generator_function)])) @function
    (program (lexical_declaration (variable_declarator name: (identifier) @name
        value: [(object) (array) (call_expression) (new_expression) (string) (number) (template_string)
            (identifier) (member_expression) (binary_expression) (regex) (true) (false) (null)
            (await_expression) (unary_expression) (ternary_expression)])) @variable)
    (program (variable_declaration (variable_declarator name: (identifier) @name
        value: [(object) (array) (call_expression) (new_expression) (string) (number) (template_string)
            (identifier) (member_expression) (binary_expression) (regex) (true) (false) (null)
            (await_expression) (unary_expression) (ternary_expression)])) @variable)
    (export_statement (lexical_declaration (variable_declarator name: (identifier) @name
        value: [(object) (array) (call_expression) (new_expression) (string) (number) (template_string)
            (identifier) (member_expression) (binary_expression) (regex) (true) (false) (null)
            (await_expression) (unary_expression) (ternary_expression)])) @variable)
    (assignment_expression left: (member_expression property: (property_identifier) @name)
        right: [(arrow_function) (function_expression)]) @function
    (pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
"""
BLANKS = """
    (comment) @blank (string_fragment) @blank (regex_pattern) @blank (regex_flags) @blank
    (escape_sequence) @blank (hash_bang_line) @blank (jsx_text) @blank
"""
KEYWORDS = (
    "await break case catch class const continue debugger default delete do else export extends false "
    "finally "
    "for function if import in instanceof let new null return super switch this throw true try typeof var "
    "void "
    "while with yield async of undefined"
)
WRAPPERS = frozenset({"export_statement"})

LANGUAGE = Language(
    name="javascript",
    grammar=tree_sitter_javascript.language,
    definitions=SHARED
    + """
    (class_declaration name: (identifier) @name) @class
    (class_body (field_definition property: (property_identifier) @name
        value: [(arrow_function) (function_expression)]) @method)
    (class_body (field_definition property: (_) @name) @field)
    (lexical_declaration (variable_declarator name: (identifier) @name value: (class))) @class
    """,
    blanks=BLANKS,
    keywords=words(KEYWORDS),
    wrappers=WRAPPERS,
    dollars=True,
)
