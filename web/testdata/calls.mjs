// Reads entries of traffic.js from standard input, as { base, entries }, and writes what calls.js makes of each.
import { readFileSync } from "node:fs";
import { callsOf } from "../static/calls.js";

const { base, entries } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(entries.map((entry) => callsOf(entry, base))));
