"""TypeScript and TSX."""

import tree_sitter_typescript

from tools.index.languages.javascript import BLANKS, KEYWORDS, SHARED, WRAPPERS
from tools.index.languages.language import Language, words

_DEFINITIONS = (
    SHARED
    + """
    (class_declaration name: (type_identifier) @name) @class
    (abstract_class_declaration name: (type_identifier) @name) @class
    (lexical_declaration (variable_declarator name: (identifier) @name value: (class))) @class
    (interface_declaration name: (type_identifier) @name) @interface
    (type_alias_declaration name: (type_identifier) @name) @type
    (enum_declaration name: (identifier) @name) @enum
    (enum_body (property_identifier) @name @constant)
    (enum_body (enum_assignment name: (property_identifier) @name) @constant)
    (function_signature name: (identifier) @name) @function
    (abstract_method_signature name: (_) @name) @method
    (interface_body (method_signature name: (_) @name) @method)
    (class_body (method_signature name: (_) @name) @method)
    (interface_body (property_signature name: (_) @name) @field)
    (class_body (public_field_definition name: (property_identifier) @name
        value: [(arrow_function) (function_expression)]) @method)
    (class_body (public_field_definition name: (_) @name) @field)
    (internal_module name: (_) @name) @module
    (module name: (_) @name) @module
    """
)
_KEYWORDS = words(
    KEYWORDS
    + " abstract as declare enum implements interface is keyof namespace private protected public readonly "
    "satisfies static string number boolean any unknown never"
)
_BLANKS = BLANKS.replace("(jsx_text) @blank", "")
_WRAPPERS = WRAPPERS | {"ambient_declaration"}

LANGUAGE = Language(
    name="typescript",
    grammar=tree_sitter_typescript.language_typescript,
    definitions=_DEFINITIONS,
    blanks=_BLANKS,
    keywords=_KEYWORDS,
    wrappers=_WRAPPERS,
    dollars=True,
    attributes=("@",),
)
TSX = Language(
    name="tsx",
    grammar=tree_sitter_typescript.language_tsx,
    definitions=_DEFINITIONS,
    blanks=BLANKS,
    keywords=_KEYWORDS,
    wrappers=_WRAPPERS,
    dollars=True,
    attributes=("@",),
)
