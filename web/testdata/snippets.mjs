// Reads { base, entries } from standard input and writes the snippets of each entry as JSON. The entries are those of traffic.js.
// Tests of cmd/parley run this script.
import { readFileSync } from "node:fs";
import { snippetsOf } from "../static/snippets.js";

const { base, entries } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(entries.map((entry) => snippetsOf(entry, base))));
