// Maps the name after the fence of a code block to a label and to a grammar of highlight.js.

// [grammar, label, names in fences]
const names = [
  ["bash", "Bash", "bash sh shell zsh console shell-session"],
  ["c", "C", "c h"],
  ["c", "C++", "cpp c++ cc hpp"],
  ["css", "CSS", "css scss less"],
  ["diff", "Diff", "diff patch"],
  ["docker", "Dockerfile", "dockerfile docker"],
  ["go", "Go", "go golang"],
  ["html", "HTML", "html htm vue svelte"],
  ["html", "XML", "xml svg xhtml"],
  ["http", "HTTP", "http"],
  ["ini", "INI", "ini conf properties"],
  ["java", "Java", "java"],
  ["js", "JavaScript", "javascript js mjs cjs jsx node"],
  ["json", "JSON", "json jsonc json5 jsonl ndjson"],
  ["lua", "Lua", "lua"],
  ["perl", "Perl", "perl pl"],
  ["python", "Python", "python py python3"],
  ["rust", "Rust", "rust rs"],
  ["sql", "SQL", "sql postgresql mysql sqlite"],
  ["toml", "TOML", "toml"],
  ["ts", "TypeScript", "typescript ts tsx mts"],
  ["yaml", "YAML", "yaml yml"],
];
const known = new Map(names.flatMap(([language, name, fences]) => fences.split(" ").map((fence) => [fence, { language, name }])));

/** Returns { language, name } for the name after a fence, or only { name } if there is no grammar for it. */
export function languageOf(fence) {
  const name = fence.trim().split(/[\s{,:]/, 1)[0];
  return known.get(name.toLowerCase()) ?? { name: name.slice(0, 20) };
}
