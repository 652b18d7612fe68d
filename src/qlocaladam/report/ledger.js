const form = document.forms[0], body = document.querySelector("#claims tbody"), rows = [...body.rows];

function show() {
  const wanted = form.search.value.toLowerCase();
  for (const row of rows) {
    row.hidden = ["verdict", "kind"].some(name => form[name].value && form[name].value !== row.dataset[name])
      || !row.textContent.toLowerCase().includes(wanted);
  }
  form.shown.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} shown`;
}

// claims.html#verdict=differs&kind=exact is a link to a selection.
function select() {
  const address = new URLSearchParams(location.hash.slice(1));
  for (const name of ["verdict", "kind", "search"]) form[name].value = address.get(name) || "";
  show();
}

function sort(head) {
  const down = head.ariaSort === "ascending", column = head.cellIndex;
  const value = row => row.cells[column].firstChild?.textContent ?? "";
  const order = (a, b) => a - b || a.localeCompare(b, "en", {numeric: true});
  for (const other of head.parentNode.cells) other.ariaSort = null;
  head.ariaSort = down ? "descending" : "ascending";
  body.append(...rows.sort((a, b) => (down ? -1 : 1) * order(value(a), value(b))));
}

form.addEventListener("input", show);
form.addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", select);
document.querySelectorAll("#claims th").forEach(head => head.addEventListener("click", () => sort(head)));
select();
