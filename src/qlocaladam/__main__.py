from qlocaladam.cli import main

raise SystemExit(main())
