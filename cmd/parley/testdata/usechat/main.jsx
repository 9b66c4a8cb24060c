// What surrounds README's component in a page: the back end's history, a way to leave, and React at its strictest.
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import Chat from "./chat.jsx";

const session = await (await fetch("/history" + location.search)).json();
const root = createRoot(document.getElementById("root"));
window.show = () => root.render(<StrictMode><Chat {...session} /></StrictMode>);
window.leave = () => root.render(null);
window.show();
