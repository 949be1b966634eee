// Prints what TypeScript's own compiler finds defined in a file: [line, name] pairs.
const fs = require("node:fs");
const ts = require(process.argv[2]);

const NAMED = [
  "isClassDeclaration", "isFunctionDeclaration", "isMethodDeclaration", "isInterfaceDeclaration",
  "isEnumDeclaration", "isEnumMember", "isTypeAliasDeclaration", "isModuleDeclaration", "isGetAccessor",
  "isPropertyDeclaration", "isPropertySignature", "isMethodSignature",
];
const file = process.argv[3];
const source = ts.createSourceFile(file, fs.readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
const found = [];

function add(node, name) {
  found.push([source.getLineAndCharacterOfPosition(node.getStart()).line + 1, name]);
}

function visit(node) {
  if (NAMED.some((test) => ts[test](node))) add(node.name, node.name.getText());
  if (ts.isConstructorDeclaration(node)) add(node, "constructor");
  if (ts.isVariableStatement(node) && node.parent === source)
    for (const one of node.declarationList.declarations) add(one.name, one.name.getText());
  ts.forEachChild(node, visit);
}

visit(source);
console.log(JSON.stringify(found));
