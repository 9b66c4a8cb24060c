// Package web embeds what a browser gets from Parley: the page at /, and the JavaScript client of the stream protocol parley.v1
// under /static. The guides in web/guides are embedded too; package server/docs renders them. Package web serves files and knows
// nothing of sessions or models. Everything is in the binary, so the page works offline.
//
// # The page
//
// There is no build step: the files in static are served as they are committed, as ES modules. Imports point one way, and each
// file begins with what it owns.
//
//	page.js            entry point; owns the client and the open session, and connects everything else
//	├─ client.js       public API: REST calls and tickets
//	│  └─ connection.js   one WebSocket and its replacements: backoff, subscriptions, liveness
//	│     └─ track.js     frames → events, each piece of text once
//	├─ log.js          the messages, and whether the view follows the end
//	│  ├─ markdown.js     streaming Markdown → elements; copy.js and languages.js for code blocks
//	│  └─ scheduler.js    DOM writes once a frame
//	├─ sessions.js     the session list; sessionlist.js holds its data
//	├─ meter.js        the context window meter
//	├─ composer.js, chip.js, problem.js, menus.js, timing.js    one control each
//	├─ traffic.js      records frames and calls, simulates network failures
//	├─ tools.js        loads the inspector and the failure simulator
//	└─ words.js, element.js    helpers: texts, storage, elements
//
// Modules that few visitors need are loaded on first use: highlight.js (by markdown.js), preview.js (by page.js), usage.js with
// chart.js (by page.js), inspector.js with snippets.js, and simulator.js (both by tools.js).
//
// client.js, connection.js, track.js and client.d.ts are public: other programs download them. Their names and their API stay.
//
// # Events are the only source
//
// The log shows what the watched session's events say. Sending a message adds only a placeholder, which goes when the message's
// event arrives. So another tab's message looks like one's own, and a reload or reconnect shows the same as before.
//
// # Security
//
// Replies, titles and errors are untrusted. Four rules keep them from becoming code; tests check each.
//
//   - No markup from strings: no innerHTML, no DOMParser, no style or event attributes. Text becomes text nodes.
//   - Trusted Types are required and no policy may be created, so the browser refuses markup from strings even if a rule is
//     broken.
//   - The content security policy allows files and connections of the same origin only, and no inline script or style.
//   - Links are complete http, https or mailto addresses, open in a new tab without opener and referrer, and images are links, so
//     that a reply never makes the browser contact another site.
//
// An API key is kept in sessionStorage, for one tab, and never in an address: a key in the fragment is removed at once. The
// inspector never records keys and tickets.
//
// # Numbers
//
//   - First load: at most 60,000 bytes compressed, in the tests TestPage_FirstLoadSize here and TestPage_FirstLoad_Below60kB in
//     cmd/parley. That is about a second at 0.5 Mbit/s.
//   - DOM writes: 4 ms a frame in steps of 1,000 characters; layout takes about four times as long, and a frame lasts 16 ms.
//   - History: 50 messages a request. Sessions: 30 a request; polled every 30 s, or every 20 min with a test key, which has 100
//     requests a day.
//   - Inspector: the newest 500 entries and 4,000,000 characters, which bounds its memory.
//   - Markdown: 20 nested elements and 2,048 characters of look-ahead, within which the parser takes linear time.
//   - Highlighting: 40,000 characters in slices of 4,000, because the grammars' regular expressions are not all linear.
//   - Reconnecting: random delays up to 0.5 s, doubling to 15 s; 10 s for a handshake; 5 s for the response to a ping.
//
// # Third-party code
//
// static/lib has two npm packages, unchanged: streaming-markdown (the parser) and @speed-highlight/core (the tokenizer).
// lib/versions.json names version, licence and the hash of each file.
package web
