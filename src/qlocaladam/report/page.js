// Inside the report the page has no folder, and so no files beside it.
if (location.protocol === "data:") document.querySelectorAll("a.file").forEach(link => link.removeAttribute("href"));
