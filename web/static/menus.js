// Menus (<details class="menu">), the session list as an overlay on narrow screens, and the confirmation dialog.

const narrow = matchMedia("(max-width: 60rem)"); // as in style.css

/** Closes all menus except one. */
function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== except) menu.open = false;
}

// Menus close when the user chooses an item or clicks elsewhere. Esc calls closeTopmost.
document.addEventListener("click", ({ target }) => {
  const menu = target.closest?.("details.menu");
  closeMenus(menu && !target.closest("[data-closes], a, .menu > div button") ? menu : null);
});

/** Closes the open menu, or else the session list if it is an overlay. Returns whether anything was closed. */
export function closeTopmost() {
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
    return true;
  }
  if (!sidebarIsOver()) return false;
  showSidebar(false);
  document.getElementById("open-sidebar").focus();
  return true;
}

/** Whether the session list covers the conversation, as on a phone. */
function sidebarIsOver() {
  return narrow.matches && document.body.dataset.sidebar === "open";
}

/** Opens or closes the session list. On wide screens it is always visible. */
export function showSidebar(open) {
  document.body.dataset.sidebar = open ? "open" : "closed";
  update();
}

function update() {
  const over = sidebarIsOver();
  document.getElementById("sidebar").inert = narrow.matches && !over;
  for (const part of document.querySelectorAll("body > header, body > main")) part.inert = over;
  document.getElementById("open-sidebar").setAttribute("aria-expanded", String(over));
}

narrow.addEventListener("change", update);
update();

/** Asks a question in a dialog, and runs action if the user confirms. The dialog closes first, so action may move the focus. */
export function ask(question, yes, action) {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("p").textContent = question;
  dialog.querySelector("#confirm-yes").textContent = yes;
  dialog.returnValue = ""; // otherwise, Esc would keep the answer of the last question
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") action();
  };
  dialog.showModal();
}
