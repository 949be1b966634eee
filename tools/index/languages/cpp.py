"""C++, and C headers."""

import tree_sitter_cpp

from tools.index.languages.c import BLANKS, FILE, KEYWORDS, SHARED, variables_in
from tools.index.languages.language import Language, words

_DECLARED = """[
    (field_identifier) @name
    (operator_name) @name
    (destructor_name) @name
    (qualified_identifier scope: (_) @container name: [
        (identifier) @name (operator_name) @name (destructor_name) @name
        (template_function name: (identifier) @name)
        (qualified_identifier scope: (_) name: [
            (identifier) @name (operator_name) @name (destructor_name) @name])
    ])
]"""

LANGUAGE = Language(
    name="cpp",
    grammar=tree_sitter_cpp.language,
    definitions=SHARED
    + variables_in(*FILE, "declaration_list")
    + f"""
    (function_definition declarator: (function_declarator declarator: {_DECLARED})) @method
    (function_definition declarator: (pointer_declarator
        declarator: (function_declarator declarator: {_DECLARED}))) @method
    (function_definition declarator: (reference_declarator
        (function_declarator declarator: {_DECLARED}))) @method
    (function_definition declarator: (reference_declarator
        (function_declarator declarator: (identifier) @name))) @function
    (function_definition declarator: (function_declarator
        declarator: (template_function name: (identifier) @name))) @function
    (function_definition declarator: (operator_cast)  @name) @method
    (field_declaration declarator: (function_declarator declarator: [
        (field_identifier) @name (operator_name) @name (destructor_name) @name])) @method
    (field_declaration declarator: (pointer_declarator declarator: (function_declarator declarator: [
        (field_identifier) @name (operator_name) @name]))) @method
    (field_declaration declarator: (reference_declarator (function_declarator declarator: [
        (field_identifier) @name (operator_name) @name]))) @method
    (field_declaration declarator: (reference_declarator (field_identifier) @name)) @field
    (field_declaration_list (declaration declarator: (function_declarator declarator: [
        (identifier) @name (destructor_name) @name])) @method)
    (class_specifier name: [
        (type_identifier) @name
        (template_type name: (type_identifier) @name)
        (qualified_identifier name: (type_identifier) @name)] body: (_)) @class
    (struct_specifier name: [
        (template_type name: (type_identifier) @name)
        (qualified_identifier name: (type_identifier) @name)] body: (_)) @struct
    (namespace_definition name: (_) @name) @module
    (alias_declaration name: (type_identifier) @name) @type
    (concept_definition name: (identifier) @name) @type
    """,
    blanks=BLANKS + " (raw_string_content) @blank",
    keywords=words(
        KEYWORDS
        + " alignas alignof bool catch class concept const_cast consteval constexpr constinit decltype "
        "delete "
        "dynamic_cast explicit export false friend mutable namespace new noexcept nullptr operator private "
        "protected public reinterpret_cast requires static_assert static_cast template this throw true try "
        "typename using virtual override final"
    ),
    wrappers=frozenset({"template_declaration"}),
    separator="::",
)
