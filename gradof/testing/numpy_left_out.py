"""What of numpy and scipy.special is not in the numpy table, and why.

A name here has no gradient (its result is no number, or whole), or gradof raises
UnsupportedOpError for it. A test holds this and the table to be all there is.
"""

from __future__ import annotations

_NO_NUMBERS = "its result is text, a type, a truth or a setting"
_WHOLE = "its result is whole: no gradient"
_FILES = "reads or writes files, buffers or text"
_WINDOW = "of Python numbers: an array that a trace holds constant"
_COMPLEX = "complex numbers"
_BY_VALUE = "its result's shape depends on values in ways that are not recorded"
_AS_IT_IS = "it is numpy's own at each call, and has no derivative"
_C = "numpy's C code takes the array before it can be recorded"

_GROUPS: dict[str, dict[str, str]] = {
    "numpy": {
        _NO_NUMBERS: """array2string array_repr array_str base_repr binary_repr
            broadcast_shapes can_cast common_type datetime_as_string datetime_data
            format_float_positional format_float_scientific frompyfunc get_include
            get_printoptions getbufsize geterr geterrcall info is_busday iscomplexobj isdtype
            isfortran isin isnat isrealobj isscalar issubdtype iterable may_share_memory
            min_scalar_type mintypecode ndim nested_iters printoptions promote_types result_type
            set_printoptions setbufsize seterr seterrcall shape shares_memory show_config
            show_runtime size test typename""",
        _WHOLE: """bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not
            bitwise_or bitwise_right_shift bitwise_xor busday_count busday_offset gcd invert lcm
            left_shift packbits ravel_multi_index right_shift unpackbits""",
        _FILES: """from_dlpack frombuffer fromfile fromfunction fromiter fromregex fromstring
            genfromtxt load loadtxt save savetxt savez savez_compressed""",
        _WINDOW: "bartlett blackman hamming hanning kaiser",
        _COMPLEX: "roots sort_complex",
        _AS_IT_IS: """histogram_bin_edges intersect1d setdiff1d setxor1d unique_all unique_counts
            unique_inverse""",
        _BY_VALUE: "unique_values",
        _C: "asarray_chkfinite require",
        "makes a matrix, a class that numpy advises against": "asmatrix bmat",
        "an old name of vstack": "row_stack",
    },
    "numpy.linalg": {_COMPLEX: "eig eigvals"},
    "numpy.fft": {
        _COMPLEX: """fft fft2 fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2
            rfftn""",
        "shifts, beside the transforms": "fftshift ifftshift",
        _WINDOW: "fftfreq rfftfreq",
    },
    "scipy.special": {
        "zeros, nodes and coefficients, of whole orders: constants": """ai_zeros bei_zeros
            beip_zeros ber_zeros bernoulli berp_zeros bi_zeros c_roots cg_roots chebyc chebys
            chebyt chebyu erf_zeros euler fresnel_zeros fresnelc_zeros fresnels_zeros gegenbauer
            genlaguerre h_roots he_roots hermite hermitenorm j_roots jacobi jn_zeros jnjnp_zeros
            jnp_zeros jnyn_zeros js_roots kei_zeros keip_zeros kelvin_zeros ker_zeros kerp_zeros
            l_roots la_roots laguerre legendre mathieu_even_coef mathieu_odd_coef obl_cv_seq
            p_roots pro_cv_seq ps_roots roots_chebyc roots_chebys roots_chebyt roots_chebyu
            roots_gegenbauer roots_genlaguerre roots_hermite roots_hermitenorm roots_jacobi
            roots_laguerre roots_legendre roots_sh_chebyt roots_sh_chebyu roots_sh_jacobi
            roots_sh_legendre s_roots sh_chebyt sh_chebyu sh_jacobi sh_legendre stirling2 t_roots
            ts_roots u_roots us_roots y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros""",
        "sequences of whole orders of a Python number": """legendre_p_all assoc_legendre_p_all
            lmbda lqmn lqn pbdn_seq pbdv_seq pbvv_seq riccati_jn riccati_yn sph_legendre_p_all
            sph_harm_y_all""",
        _COMPLEX: "kelvin modfresnelm modfresnelp wofz",
        "inverse in a parameter, in which the derivative has no closed form": """bdtrik bdtrin
            btdtria btdtrib chdtriv chndtridf chndtrinc chndtrix fdtridfd gdtria gdtrib gdtrix
            nbdtrik nbdtrin ncfdtridfd ncfdtridfn ncfdtrinc nctdtridf nctdtrinc nrdtrimn nrdtrisd
            pdtrik stdtridf""",
        "no closed derivative in functions that scipy has": """chndtr ellip_harm ellip_harm_2
            ellip_normal kolmogi kolmogorov log_wright_bessel mathieu_a mathieu_b ncfdtr ncfdtri
            nctdtr nctdtrit obl_cv pro_cv smirnov smirnovi zetac""",
        "not written: Mathieu, spheroidal and Carlson functions": """elliprc elliprd elliprf
            elliprg elliprj mathieu_cem mathieu_modcem1 mathieu_modcem2 mathieu_modsem1
            mathieu_modsem2 mathieu_sem obl_ang1 obl_ang1_cv obl_rad1 obl_rad1_cv obl_rad2
            obl_rad2_cv pro_ang1 pro_ang1_cv pro_rad1 pro_rad1_cv pro_rad2 pro_rad2_cv""",
        "scipy computes it to nine digits, too few to tell its derivative": "itairy",
        "no ufunc, and not written": "assoc_legendre_p factorial2 factorialk",
        "a setting": "geterr seterr",
    },
}  # fmt: skip

LEFT_OUT: dict[str, str] = {
    f"{module}.{name}": reason
    for module, groups in _GROUPS.items()
    for reason, names in groups.items()
    for name in names.split()
}
