// Reads { base, entries } from standard input, with entries of traffic.js, and writes the snippets of each. Run by cmd/parley's
// tests.
import { readFileSync } from "node:fs";
import { snippetsOf } from "../static/snippets.js";

const { base, entries } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(entries.map((entry) => snippetsOf(entry, base))));
