// Reads entries of traffic.js from standard input, as { base, entries }, and writes what snippets.js makes of each.
import { readFileSync } from "node:fs";
import { snippetsOf } from "../static/snippets.js";

const { base, entries } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(entries.map((entry) => snippetsOf(entry, base))));
